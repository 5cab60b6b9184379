/* Lets Cyclone DDS decode each vector. Prints the vector's number, and `refused` or the bytes to
   which Cyclone DDS's writer encodes the decoded value. `readback.py` generates the calls of `offer`
   and reads the output. */
#include "readback.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dds/ddsi/ddsi_serdata.h"
#include "dds/ddsi/ddsi_sertype.h"

static dds_entity_t participant;

/* Decoding needs the internal type of a topic. A sample of zeros, written and taken, has it. */
static struct ddsi_serdata *take_zeros(dds_entity_t topic, const dds_qos_t *qos, const dds_topic_descriptor_t *descriptor)
{
  struct ddsi_serdata *data;
  dds_sample_info_t info;
  void *zeros = calloc(1, descriptor->m_size);
  dds_entity_t reader = dds_create_reader(participant, topic, qos, NULL);
  dds_entity_t writer = dds_create_writer(participant, topic, qos, NULL);
  if (dds_write(writer, zeros) != DDS_RETCODE_OK || dds_takecdr(reader, &data, 1, &info, DDS_ANY_STATE) != 1)
    abort();
  dds_delete(writer);
  dds_delete(reader);
  free(zeros);
  return data;
}

static void print_encoding(const struct ddsi_serdata *data)
{
  size_t size = ddsi_serdata_size(data);
  unsigned char *bytes = malloc(size);
  ddsi_serdata_to_ser(data, 0, size, bytes);
  for (size_t i = 0; i < size; i++)
    printf("%02x", bytes[i]);
  printf("\n");
  free(bytes);
}

static void print_again(const struct ddsi_serdata *read, const dds_topic_descriptor_t *descriptor)
{
  void *sample = calloc(1, descriptor->m_size);
  if (!ddsi_serdata_to_sample(read, sample, NULL, NULL))
    abort();
  struct ddsi_serdata *written = ddsi_serdata_from_sample(read->type, SDK_DATA, sample);
  print_encoding(written);
  ddsi_serdata_unref(written);
  dds_sample_free(sample, descriptor, DDS_FREE_ALL);
}

void offer(int line, dds_data_representation_id_t representation, const dds_topic_descriptor_t *descriptor,
           const unsigned char *bytes, size_t size)
{
  dds_qos_t *qos = dds_create_qos();
  dds_qset_data_representation(qos, 1, &representation);
  dds_entity_t topic = dds_create_topic(participant, descriptor, "golden", qos, NULL);
  if (topic >= 0) { /* otherwise Cyclone DDS does not support this encoding for the type */
    struct ddsi_serdata *zeros = take_zeros(topic, qos, descriptor);
    ddsrt_iovec_t vector = { .iov_base = (void *) bytes, .iov_len = size };
    struct ddsi_serdata *read = ddsi_serdata_from_ser_iov(zeros->type, SDK_DATA, 1, &vector, size);
    printf("%d ", line);
    if (read == NULL) {
      printf("refused\n");
    } else {
      print_again(read, descriptor);
      ddsi_serdata_unref(read);
    }
    ddsi_serdata_unref(zeros);
    dds_delete(topic);
  }
  dds_delete_qos(qos);
}

int main(void)
{
  participant = dds_create_participant(DDS_DOMAIN_DEFAULT, NULL, NULL);
  if (participant < 0)
    return 1;
  all_offers();
  dds_delete(participant);
  return 0;
}
