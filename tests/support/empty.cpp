// Keeps the support library from being empty on its own.
