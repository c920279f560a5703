"""Linear models: TF-IDF, logistic and ridge regression."""
