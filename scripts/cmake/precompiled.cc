// Gives the precompiled header its target: see DdprunTargets.cmake.
