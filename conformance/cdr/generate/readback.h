/* Declarations for the C file that `readback.py offer` generates. */
#ifndef READBACK_H
#define READBACK_H
#include <stddef.h>
#include "dds/dds.h"

void offer(int line, dds_data_representation_id_t representation, const dds_topic_descriptor_t *descriptor,
           const unsigned char *bytes, size_t size);
void all_offers(void);
#endif
