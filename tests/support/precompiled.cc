// Carries the precompiled headers of the test programs: CMake makes them with the first file that uses them.
