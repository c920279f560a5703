"""Word tagging, such as named entity recognition (NER; Devlin 2018, section 5.3)."""
