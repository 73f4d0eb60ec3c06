// C++ streams: libstdc++ opens with fopen64 and then uses the descriptor itself.
#include <fstream>
#include <iostream>
#include <string>

int main() {
    {
        std::ofstream out("out");
        for (int i = 0; i < 5000; i++) out << i << ' ' << i * 0.5 << '\n';
        out << std::string(100000, 'x') << std::endl;
        std::cout << "at " << out.tellp() << ' ' << out.good() << '\n';
    }
    {
        std::ofstream more("out", std::ios::app);
        more << "appended\n";
    }
    {
        std::fstream both("out", std::ios::in | std::ios::out);
        both.seekp(10);
        both << "CHANGED";
        both.seekg(5);
        std::string line;
        std::getline(both, line);
        std::cout << line << '\n';
    }
    {
        std::wofstream wide("wide");
        wide << L"wide " << 42 << L'\n';
    }
    std::ifstream in("out");
    std::string word;
    long words = 0;
    while (in >> word) words++;
    std::cout << words << '\n';
    std::ifstream none("none");
    std::cout << none.is_open() << '\n';
    std::ofstream full("/dev/full");
    full << "x" << std::flush;
    std::cout << full.good() << '\n';
}
