"""The REST door: Run:ai's routes and shapes over the same services as the browser."""
