"""Extensions that other programs load. Each module needs its program installed."""
