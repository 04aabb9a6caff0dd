"""Pairs of two cameras without charts: does the second camera help here?"""
