"""What people read: status, plans, the books and the ways out of trouble."""
