"""A small tuning file, laid out as libcamera's are."""

TUNING = """{
    "version": 2.0,
    "target": "pisp",
    "algorithms": [
        {
            "rpi.lux":
            {
                "reference_shutter_speed": 10672,
                "reference_gain": 1.12,
                "reference_aperture": 1.0,
                "reference_lux": 977,
                "reference_Y": 8627
            }
        },
        {
            "rpi.dpc": { }
        },
        {
            "rpi.awb":
            {
                "modes":
                {
                    "auto":
                    {
                        "lo": 2500,
                        "hi": 7700
                    },
                },
                "ct_curve":
                [
                    3000.0, 0.7451, 0.3213,
                    5000.0, 0.5, 0.5,
                    7600.0, 0.3847, 0.6921
                ],
                "sensitivity_r": 1.0,
                "sensitivity_b": 1.0
            }
        },
        {
            "rpi.nn.awb":
            {
                "ct_curve":
                [
                    3000.0, 1.4902, 0.9639,
                    7600.0, 0.7694, 2.0763
                ],
                "sensitivity_r": 2.0,
                "sensitivity_b": 3.0
            }
        },
        {
            "rpi.ccm":
            {
                "ccms": [
                    {
                        "ct": 3000,
                        "ccm":
                        [
                            1.5, -0.3, -0.2,
                            -0.4, 1.6, -0.2,
                            0.0, -0.5, 1.5
                        ]
                    },
                    {
                        "ct": 7000,
                        "ccm":
                        [
                            1.7, -0.5, -0.2,
                            -0.2, 1.4, -0.2,
                            0.1, -0.7, 1.6
                        ]
                    }
                ]
            }
        }
    ]
}"""
