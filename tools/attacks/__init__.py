"""The attacks of tools/attack, and what they share."""
