"""What a field tells of itself: findings about its fit, the text of a check, its look in a notebook."""
