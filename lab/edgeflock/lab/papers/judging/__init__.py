"""The numbers of runs held against what a paper says of its own: places, claims, rules and their words."""
