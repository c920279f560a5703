"""The model: from a batch of token ids to hidden states and scores."""
