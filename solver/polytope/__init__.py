"""The planning problem as linear rows and columns, its relaxation and its MILP."""
