"""Static files: hashed names, compressed, far-future expiry."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStorage(CompressedManifestStaticFilesStorage):
    """WhiteNoise's storage; vendored files are taken as they are, source maps they name need not exist."""

    manifest_strict = False
    patterns = (("*.css", CompressedManifestStaticFilesStorage.patterns[0][1][:2]),)
