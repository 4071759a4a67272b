"""iCalendar files: when something takes place, and where; nothing else of an event is kept."""
