"""The peer of a submit: the create of a stock ModelViewSet, for the same things in the same project."""
