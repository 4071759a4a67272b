"""What operators watch: figures that say nothing of people, and whether a service is well."""
