"""CORe50 (Lomonaco and Maltoni 2017): continuous object recognition in three scenarios."""
