"""Forecasts and reasons as values and sentences. Pure."""
