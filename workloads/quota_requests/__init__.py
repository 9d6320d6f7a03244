"""Requests for more quota: asked for with their impact, decided, synced, and taken back when their date passes."""
