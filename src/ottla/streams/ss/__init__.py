"""SeaStreamer's `.ss` file format, byte for byte. Pure: bytes in, bytes out, no files.

A file is a header of 128 bytes and then frames, one per message. At every offset that is a positive
multiple of the beacon interval lies a beacon, which cuts the frame it falls into: it says how many
bytes of that frame follow, and marks how far some of the streams have come. Beacons make a file
seekable and its torn end findable. Integers are big-endian.
"""
