"""What a field and its errors say together: intervals, chances, and maps of what is more than chance."""
