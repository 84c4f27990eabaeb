"""Drawing: lines, piled costs, fields of colour, and how they all look."""
