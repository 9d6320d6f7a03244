"""The scheduling model on the observed cluster: previews, alternatives, reasons for waiting, who can evict whom."""
