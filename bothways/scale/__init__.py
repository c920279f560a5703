"""Large jobs: object storage, token stores in shards, the parts of a job, and Ray. Nothing below imports this folder."""
