"""What is asked and how it is graded: data, prompts, grading, the tiny world."""
