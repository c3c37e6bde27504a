"""The calibrated numbers of the roofline, and what measured runs correct of them."""
