"""Forecasts that were shown are stored, and compared with what happened."""
