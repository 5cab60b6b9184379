/* What a generated case needs: C's usual headers, Cyclone DDS, and the function that prints its encodings. */
#ifndef CYCLONE_H
#define CYCLONE_H
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "dds/dds.h"

/* Prints `name encoding order hex keyhash` in both byte orders if Cyclone DDS has the encoding for the type. */
void emit(const char *name, const dds_topic_descriptor_t *descriptor, const void *value);
void all_cases(void);
#endif
