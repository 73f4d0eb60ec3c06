// The C++ class, written to and read back.
#include <sion_cxx.h>

#include <cstring>
#include <vector>

#include "check.h"

static void refuse_missing_arrays() {
    sionlib::serial::SIONFile file("classes.sion");
    file.setFileSystemBlockSize(10);
    file.setNumberOfTasks(4);
    file.open();
    CHECK(file.getSid() == -1 && sion_last_error() == SION_ERR_ARGUMENT);
}

static void write() {
    std::vector<sion_int64> sizes(4, 1000);
    std::vector<int> ranks = {0, 1, 2, 3};
    sionlib::serial::SIONFile file("classes.sion", "bw", 4, 1, sizes.data(), 512, ranks.data());
    file.open();
    CHECK(file.getSid() >= 0 && file.getFileSystemBlockSize() == 512);
    for (int task = 3; task >= 0; task--) {
        file.setRank(task);
        file.seek();
        CHECK(file.getReturnCode() == SION_SUCCESS);
        file.ensureFreeSpace(100);
        CHECK(file.getReturnCode() == SION_SUCCESS);
        file << task << 2.5 * task;
        std::string text(700, static_cast<char>('a' + task));
        file.write(text, 7, 100);
        CHECK(file.getReturnCode() == 100 && file.getBytesWritten() == 712);
    }
    CHECK(file.close() == SION_SUCCESS);
}

static void read() {
    std::vector<sion_int64> sizes(4);
    sionlib::serial::LSIONFile file("classes.sion", "br");
    file.setChunkSizes(sizes.data());
    file.open();
    CHECK(file.getSid() >= 0 && file.getNumberOfTasks() == 4 && sizes[3] == 1024);
    for (int task = 0; task < 4; task++) {
        int number = -1;
        double half = -1;
        char text[700];
        file.setRank(task);
        file.seekFp();
        file >> number >> half;
        CHECK(number == task && half == 2.5 * task);
        file.read(text, 700, 1);
        CHECK(file.getReturnCode() == 1 && text[699] == 'a' + task);
        file.endOfFile();
        CHECK(file.getReturnCode() == 1);
    }
}

static void read_one() {
    int number = -1;
    sionlib::serial::SIONFile file("classes.sion", "br");
    file.setRank(2);
    file.openRank();
    file >> number;
    CHECK(number == 2 && file.getChunkSize() == 1024 && file.getBytesRead() == 4);
}

int main() {
    refuse_missing_arrays();
    write();
    read();
    read_one();
    return 0;
}
