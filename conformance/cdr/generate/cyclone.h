/* Declarations for the C file that `cyclone.py` generates: standard headers, Cyclone DDS, and the
   functions of `cyclone.c`. */
#ifndef CYCLONE_H
#define CYCLONE_H
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "dds/dds.h"

/* Prints `name encoding order hex keyhash` in both byte orders if Cyclone DDS supports the encoding
   for the type. */
void emit(const char *name, const dds_topic_descriptor_t *descriptor, const void *value);
void all_cases(void);
#endif
