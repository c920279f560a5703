"""The products and the attention of the encoder in C, and what compiles them."""
