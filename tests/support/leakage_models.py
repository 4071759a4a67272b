"""Models of leakage questions whose answers are known from the papers."""

PAIR = {"00": 0.3, "01": 0.2, "10": 0.1, "11": 0.4}
XOR = {"000": 0.25, "011": 0.25, "101": 0.25, "110": 0.25}
OSDP = {"joint": PAIR, "epsilon": [1, 0.5], "queries": [1, 1], "released": [0, 0]}
PRIOR = {"domains": [[0, 1], [0, 1]], "joint": [[0.3, 0.2], [0.2, 0.3]], "scale": 1}
COMPOSE = {
    "delta": 1e-6,
    "releases": [
        {"noise": "laplace", "epsilon": "0.1", "times": 96},
        {"noise": "gaussian", "sigma": "21.854", "times": 96},
    ],
    "group": 1,
}
