"""Match parts of the original with the parts of the converted model that compute the same."""
