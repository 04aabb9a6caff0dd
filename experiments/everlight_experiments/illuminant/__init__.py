"""Illuminant estimation from the two cameras of a phone."""

CITATION = (
    'Abdelhamed et al. 2021, "Leveraging the Availability of Two Cameras for Illuminant Estimation"'
)
