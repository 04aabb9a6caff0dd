"""Images as networks read them: stored, or decoded from files step by step."""
