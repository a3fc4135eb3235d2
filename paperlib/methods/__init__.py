"""What is rewarded: the reward terms of every method."""
