"""What can be rented: offers grouped into pools, and the supply of pieces that the search draws from."""
