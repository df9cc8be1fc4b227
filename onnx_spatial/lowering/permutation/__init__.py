"""Lower operators that permute the factors of their axes."""
