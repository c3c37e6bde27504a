"""Rival planning strategies, side by side with sutler on the same polytope and the same rates."""
