"""Large jobs: object storage, token stores in shards, jobs in parts, and Ray."""
