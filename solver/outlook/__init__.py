"""How likely an offer is still there when somebody comes for it, and how long it lasts, from what polls saw.

spells of machines -> lives.py (exposure and ends) -> hazards.py (rates of cells) -> cells.py (which cells)
-> chances.py (the chance of one machine, and of a whole fleet with spares)
"""
