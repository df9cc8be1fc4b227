"""Find spatial operators that are spelled in standard nodes."""
