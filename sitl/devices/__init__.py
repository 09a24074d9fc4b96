"""The devices that are connected to the companion of a simulated aircraft: stereo and depth camera, its IMU, range finder."""
