"""Run parts and whole models, and compare what they compute."""
