"""What could be deployed: layouts that fit and that engines run, those that others make needless left out."""
