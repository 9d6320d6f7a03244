"""The shared kit below all apps: actors, errors, paging, filters, HTML fragments. Imports no other app."""
