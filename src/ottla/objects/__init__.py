"""Object stores: S3, Google Cloud Storage, Azure, a directory, memory."""
