"""Files by which camera pipelines are tuned, such as libcamera's for Raspberry Pi."""
